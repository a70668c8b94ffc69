    cmp BYTE PTR [rdi+0xa0],0x7
    jne 1
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x58
    mov rbx,rdi
    mov r14,QWORD PTR [rdi+0x68]
    mov edx,DWORD PTR [r14+0x3c]
    bswap edx
    mov ebp,DWORD PTR [rdi+0x148]
    mov eax,edx
    xor eax,ebp
    test al,0xfd
    jne 2
    mov rax,QWORD PTR [rbx+0x20]
    mov ecx,DWORD PTR [r14+0x20]
    cmp rax,rcx
    jne 2
    mov rsi,QWORD PTR [rbx+0x28]
    shr edx,0x10
    lea rdi,[rsp+0x18]
    call QWORD PTR [_ZN8mlx5_wqe4send7records11SendRecords12retire_ahead]
    cmp DWORD PTR [rsp+0x18],0x1
    jne 2
    mov rax,QWORD PTR [rsp+0x20]
    movzx ecx,WORD PTR [rsp+0x2c]
    mov rdx,QWORD PTR [rbx+0x40]
    add rdx,r14
    cmp rdx,QWORD PTR [rbx+0x78]
    jne 0
    xor ebp,0x1
    mov DWORD PTR [rbx+0x148],ebp
    mov rdx,QWORD PTR [rbx+0x70]
0:
    mov QWORD PTR [rbx+0x68],rdx
    mov edx,DWORD PTR [rbx+0x140]
    add DWORD PTR [rbx+0x144],edx
    movzx ecx,cl
    or cx,WORD PTR [rbx+0x154]
    mov QWORD PTR [rbx+0x50],r14
    mov QWORD PTR [rbx+0x58],rax
    mov WORD PTR [rbx+0x60],cx
    jmp 54
1:
    xor eax,eax
    ret
2:
    mov rax,QWORD PTR [rbx+0x68]
    movzx eax,BYTE PTR [rax+0x3f]
    xor al,BYTE PTR [rbx+0x148]
    test al,0x1
    jne 45
    lea r15,[rbx+0xe0]
    lea rbp,[rbx+0x30]
    mov DWORD PTR [rsp+0x4],eax
    mov QWORD PTR [rsp+0x10],rax
3:
    mov r13,QWORD PTR [rbx+0x68]
    mov ecx,DWORD PTR [r13+0x3c]
    mov edi,ecx
    shr edi,0x18
    mov eax,ecx
    shr eax,0x1a
    and al,0x3
    cmp al,0x3
    sete dl
    cmp ecx,0x50000000
    setb sil
    test sil,dl
    je 6
    cmp DWORD PTR [rbx+0x12c],0x0
    jne 5
    mov rsi,QWORD PTR [rbx+0x90]
    cmp BYTE PTR [rsi+0x30],0x4
    je 63
    add rsi,0x10
    mov edx,DWORD PTR [rbx+0x144]
    movzx ecx,dil
    mov rdi,r15
    call QWORD PTR [_ZN7mlx5_cq3run3Run5start]
    test al,0x1
    jne 62
    cmp BYTE PTR [rbx+0x11f],0x10
    jb 5
    mov ecx,DWORD PTR [rbx+0x100]
    mov eax,0xffffff00
    and ecx,eax
    bswap ecx
    mov rdx,QWORD PTR [rbx+0x98]
    mov eax,DWORD PTR [rbx+0x14c]
    mov rdx,QWORD PTR [rdx+0x10]
    mov esi,ecx
    shr esi,0xc
    mov rdx,QWORD PTR [rdx+rsi*8]
    test rdx,rdx
    je 5
    and ecx,0xfff
    shl ecx,0x4
    lea rsi,[rdx+rcx*1]
    mov rdi,QWORD PTR [rdx+rcx*1+0x8]
4:
    mov rcx,rdi
    mov rdx,QWORD PTR [rsi]
    mov rdi,QWORD PTR [rsi+0x8]
    cmp rdi,rcx
    jne 4
    cmp rcx,0x2
    jb 5
    shr rdx,0x20
    cmp eax,edx
    jne 5
    cmp DWORD PTR [rcx+0x190],0x2
    sete BYTE PTR [rbx+0x13b]
5:
    mov rdx,QWORD PTR [rbx+0x90]
    add rdx,0x10
    lea rdi,[rsp+0x18]
    mov rsi,r15
    call QWORD PTR [_ZN7mlx5_cq3run3Run6expand]
    cmp DWORD PTR [rsp+0x18],0x1
    je 61
    mov r13,QWORD PTR [rsp+0x20]
    test r13,r13
    je 8
    mov QWORD PTR [rbx+0x68],r13
    mov QWORD PTR [rbx+0x40],0x40
    mov DWORD PTR [rbx+0x140],0x0
    mov QWORD PTR [rbx+0x78],0xffffffffffffffff
    xor r11d,r11d
    cmp BYTE PTR [rbx+0x13a],0x0
    setne r11b
    shl r11d,0x9
    add r11d,0x200
    mov WORD PTR [rbx+0x154],r11w
    jmp 10
6:
    cmp DWORD PTR [rbx+0x12c],0x0
    jne 9
    and dil,0xf0
    cmp dil,0x50
    sete sil
    mov edx,DWORD PTR [rbx+0x150]
    test edx,edx
    setne dil
    test sil,dil
    je 28
    dec edx
    mov DWORD PTR [rbx+0x150],edx
    add r13,QWORD PTR [rbx+0x40]
    cmp r13,QWORD PTR [rbx+0x78]
    jne 7
    xor BYTE PTR [rbx+0x148],0x1
    mov r13,QWORD PTR [rbx+0x70]
7:
    mov QWORD PTR [rbx+0x68],r13
    mov eax,DWORD PTR [rbx+0x140]
    add DWORD PTR [rbx+0x144],eax
    jmp 38
8:
    mov r13,QWORD PTR [rbx+0x68]
9:
    movzx r11d,WORD PTR [rbx+0x154]
10:
    mov eax,DWORD PTR [r13+0x20]
    mov edx,DWORD PTR [r13+0x3c]
    bswap edx
    shl rdx,0x20
    or rdx,rax
    mov rax,rdx
    shr rax,0x20
    mov QWORD PTR [rsp+0x30],rax
    mov r14d,eax
    shr r14b,0x4
    cmp r14b,0xc
    je 44
    mov r12d,edx
    and r12d,0xffffff00
    bswap r12d
    movzx r10d,r14b
    mov al,0x1
    cmp r14b,0xe
    ja 20
    mov ecx,0x401e
    bt ecx,r10d
    jae 14
11:
    mov rsi,rbp
12:
    mov ecx,edx
    cmp QWORD PTR [rsi],rcx
    jne 13
    mov ecx,0x30
    test al,al
    je 23
    jmp 24
13:
    mov QWORD PTR [rsp+0x8],r13
    jmp 15
14:
    mov ecx,0x2001
    bt ecx,r10d
    jae 20
    mov ecx,edx
    lea rax,[rbx+0x20]
    cmp QWORD PTR [rax],rcx
    je 23
    mov QWORD PTR [rsp+0x8],r13
    xor eax,eax
15:
    mov rsi,QWORD PTR [rbx+0x98]
    mov edi,DWORD PTR [rbx+0x14c]
    mov rsi,QWORD PTR [rsi+0x10]
    mov r8d,r12d
    shr r8d,0xc
    mov rsi,QWORD PTR [rsi+r8*8]
    test rsi,rsi
    je 59
    mov r13,r10
    mov r8d,r12d
    and r8d,0xfff
    shl r8d,0x4
    lea r9,[rsi+r8*1]
    mov r10,QWORD PTR [rsi+r8*1+0x8]
16:
    mov rsi,r10
    mov r8,QWORD PTR [r9]
    mov r10,QWORD PTR [r9+0x8]
    cmp r10,rsi
    jne 16
    mov r9,r8
    shr r9,0x20
    test al,al
    cmove r9d,r8d
    cmp edi,r9d
    jne 59
    mov r10,r13
    cmp rsi,0x1
    je 17
    test rsi,rsi
    je 59
    test al,al
    je 22
    mov QWORD PTR [rbx+0x30],rcx
    mov QWORD PTR [rbx+0x38],rsi
    mov ecx,0x30
    mov r13,QWORD PTR [rsp+0x8]
    jmp 24
17:
    mov rdi,QWORD PTR [rbx]
    test rdi,rdi
    je 19
    mov rax,QWORD PTR [rbx+0x8]
    lea ecx,[r10-0x1]
    cmp ecx,0x4
    jb 18
    cmp r10d,0xe
    jne 19
18:
    shr rdx,0x30
    mov esi,r12d
    call QWORD PTR [rax+0x20]
19:
    mov rdi,rbx
    mov rsi,QWORD PTR [rsp+0x8]
    jmp 37
20:
    mov rsi,QWORD PTR [rbx+0x98]
    mov ecx,DWORD PTR [rbx+0x14c]
    mov rsi,QWORD PTR [rsi+0x10]
    mov edi,r12d
    shr edi,0xc
    mov rdi,QWORD PTR [rsi+rdi*8]
    test rdi,rdi
    je 11
    mov r8d,r12d
    and r8d,0xfff
    shl r8d,0x4
    lea rsi,[rdi+r8*1]
    mov r9,QWORD PTR [rdi+r8*1+0x8]
21:
    mov rdi,r9
    mov r8,QWORD PTR [rsi]
    mov r9,QWORD PTR [rsi+0x8]
    cmp r9,rdi
    jne 21
    mov rsi,rbp
    cmp ecx,r8d
    jne 12
    test rdi,rdi
    sete al
    lea rsi,[rbx+0x20]
    cmove rsi,rbp
    jmp 12
22:
    mov QWORD PTR [rbx+0x20],rcx
    mov QWORD PTR [rbx+0x28],rsi
    mov r13,QWORD PTR [rsp+0x8]
23:
    mov ecx,0x20
24:
    mov rsi,QWORD PTR [rbx+rcx*1+0x8]
    mov rbp,rdx
    shr rbp,0x30
    mov r15b,0x1
    cmp r14b,0xe
    mov QWORD PTR [rsp+0x38],r11
    ja 43
    lea rcx,[data]
    movsxd rax,DWORD PTR [rcx+r10*4]
    add rax,rcx
    jmp rax
    mov rax,QWORD PTR [rsi+0x190]
    cmp rax,0x2
    jne 25
    mov r8,rbp
    mov QWORD PTR [rsp+0x10],0x0
    mov eax,r14d
    mov DWORD PTR [rsp+0x4],eax
    jmp 34
    mov rax,QWORD PTR [rsi+0x190]
    cmp rax,0x2
    je 56
25:
    mov rdi,QWORD PTR [rsi+0x198]
    test rax,rax
    mov QWORD PTR [rsp+0x8],rsi
    je 27
    cmp QWORD PTR [rdi+0x28],rbp
    jbe 26
    mov rax,QWORD PTR [rdi+0x20]
    movzx ecx,BYTE PTR [rax+rbp*1]
    test cl,cl
    je 26
    xor ecx,ecx
    xchg BYTE PTR [rax+rbp*1],cl
    test cl,cl
    je 26
    mov rax,QWORD PTR [rdi+0x10]
    mov r15,QWORD PTR [rax+rbp*8]
    mov rsi,rdx
    shr rsi,0x36
    mov r8,QWORD PTR [rdi+0x30]
    mov eax,0x1
    mov r9d,0x1
    mov ecx,ebp
    shl r9,cl
    lock or QWORD PTR [r8+rsi*8],r9
    mov rcx,QWORD PTR [rdi+0x40]
    mov BYTE PTR [rcx+rsi*1],0x1
    mov rcx,QWORD PTR [rdi+0x50]
    shr rdx,0x3c
    mov BYTE PTR [rcx+rdx*1],0x1
    cmp rax,0x1
    jne 33
    jmp 50
26:
    xor eax,eax
    cmp rax,0x1
    jne 33
    jmp 50
27:
    sub rdi,0xffffffffffffff80
    mov esi,ebp
    mov r15,r10
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue14ReceiveRecords6retire]
    mov r10,r15
    mov r15,rdx
    cmp rax,0x1
    jne 33
    jmp 50
    mov r14,r10
    lea rdi,[rsp+0x18]
    mov edx,ebp
    xor ecx,ecx
    mov r15,rbp
    mov rbp,rsi
    call QWORD PTR [_ZN8mlx5_wqe4send7records11SendRecords10retire_any]
    mov rax,QWORD PTR [rsp+0x18]
    cmp rax,0x2
    je 42
    test rax,rax
    jne 35
    jmp 57
    mov rax,QWORD PTR [rsi+0x190]
    lea rdi,[rsi+0x198]
    cmp rax,0x2
    mov QWORD PTR [rsp+0x8],rsi
    je 29
    cmp eax,0x1
    jne 30
    mov r14,QWORD PTR [rdi]
    cmp QWORD PTR [r14+0x28],rbp
    jbe 31
    mov rax,QWORD PTR [r14+0x20]
    movzx ecx,BYTE PTR [rax+rbp*1]
    test cl,cl
    je 31
    xor ecx,ecx
    xchg BYTE PTR [rax+rbp*1],cl
    test cl,cl
    je 31
    mov rax,QWORD PTR [r14+0x10]
    mov r15,QWORD PTR [rax+rbp*8]
    mov rdi,rdx
    shr rdi,0x36
    mov r8,QWORD PTR [r14+0x30]
    mov eax,0x1
    mov r9d,0x1
    mov ecx,ebp
    shl r9,cl
    lock or QWORD PTR [r8+rdi*8],r9
    mov rcx,QWORD PTR [r14+0x40]
    mov BYTE PTR [rcx+rdi*1],0x1
    mov rcx,QWORD PTR [r14+0x50]
    shr rdx,0x3c
    mov BYTE PTR [rcx+rdx*1],0x1
    jmp 32
    mov r14,r10
    lea rdi,[rsp+0x18]
    mov edx,ebp
    mov ecx,0x1
    mov r15,rbp
    mov rbp,rsi
    call QWORD PTR [_ZN8mlx5_wqe4send7records11SendRecords10retire_any]
    mov rax,QWORD PTR [rsp+0x18]
    cmp rax,0x2
    je 42
    test rax,rax
    jne 35
    jmp 58
28:
    movzx edx,al
    lea rdi,[data]
    movsxd rsi,DWORD PTR [rdi+rdx*4]
    add rsi,rdi
    jmp rsi
    mov esi,0x20
    cmp ecx,0x4fffffff
    ja 39
    jmp 41
29:
    mov r14,r10
    call QWORD PTR [_ZN8mlx5_wqe7receive8striding15StridingRecords13retire_failed]
    mov r10,r14
    mov r15,rdx
    jmp 32
30:
    mov r14,r10
    mov rdi,QWORD PTR [rdi]
    sub rdi,0xffffffffffffff80
    mov esi,ebp
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue14ReceiveRecords6retire]
    mov r15,rdx
    mov r10,r14
    jmp 32
31:
    xor eax,eax
32:
    test al,0x1
    jne 52
33:
    mov r8,rbp
    xor r15d,r15d
    mov rsi,QWORD PTR [rsp+0x8]
34:
    lea rdi,[rsp+0x40]
    mov rbp,rsi
    mov rdx,r13
    mov r14,r10
    mov ecx,r10d
    call _ZN7mlx5_cq12tag_matching6retire
    movzx eax,WORD PTR [rsp+0x40]
    cmp eax,0x2
    je 46
    test eax,eax
    je 67
    mov rcx,QWORD PTR [rsp+0x44]
    mov eax,ecx
    shr eax,0x8
    mov DWORD PTR [rsp+0x4],eax
    mov QWORD PTR [rsp+0x10],rcx
    shr rcx,0x10
    mov QWORD PTR [rsp+0x50],rcx
35:
    lea r15,[rbx+0xe0]
    lea rbp,[rbx+0x30]
36:
    mov rdi,rbx
    mov rsi,r13
37:
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$8pass_any
38:
    mov rax,QWORD PTR [rbx+0x68]
    movzx eax,BYTE PTR [rax+0x3f]
    xor al,BYTE PTR [rbx+0x148]
    test al,0x1
    je 3
    jmp 45
    cmp ecx,0x4fffffff
    jbe 40
39:
    xor r11d,r11d
    jmp 10
    xor r11d,r11d
    cmp ecx,0x4fffffff
    ja 10
    jmp 68
40:
    mov esi,0x40
    cmp QWORD PTR [rbx+0x40],0x40
    jbe 70
41:
    mov r11d,DWORD PTR [r13+0x2c]
    bswap r11d
    cmp esi,r11d
    jb 69
    cmp al,0x2
    mov r11d,0x800
    mov eax,0x4000
    cmove r11d,eax
    jmp 10
42:
    mov r8,r15
    xor r15d,r15d
    mov r10,r14
    mov rsi,rbp
    jmp 34
43:
    mov r8,rbp
    mov eax,r14d
    mov DWORD PTR [rsp+0x4],eax
    mov QWORD PTR [rsp+0x10],0x0
    jmp 34
44:
    mov rdi,QWORD PTR [rbx+0x10]
    mov rsi,QWORD PTR [rbx+0x18]
    mov rdx,r13
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$22report_signature_error
    jmp 36
45:
    mov rax,QWORD PTR [rbx+0x90]
    mov ecx,DWORD PTR [rbx+0x144]
    mov DWORD PTR [rax+0x2c],ecx
    mov rax,QWORD PTR [rbx+0x88]
    and ecx,0xffffff
    bswap ecx
    mov DWORD PTR [rax],ecx
    xor eax,eax
    jmp 55
46:
    test r15b,r15b
    mov r11,QWORD PTR [rsp+0x38]
    mov r10,r14
    mov rsi,rbp
    jne 66
47:
    movzx eax,BYTE PTR [rsi+0x1a8]
    test al,al
    jne 51
    shl r12,0x20
    mov rax,QWORD PTR [rsp+0x30]
    and eax,0xffff0000
    lea rsi,[r12+rax*1]
    add rsi,0x2
48:
    mov rdi,rbx
49:
    call _ZN7mlx5_cq4ring13Ring$LT$Q$GT$5latch
    xor eax,eax
    jmp 55
50:
    or r14b,0x80
    movzx ebp,r14b
    jmp 53
51:
    mov rdi,rbx
    mov rsi,r13
    mov edx,r10d
    mov ecx,r11d
    call QWORD PTR [_ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$10found_lent]
    jmp 54
52:
    mov bp,0x180
53:
    mov rdi,rbx
    mov rsi,r13
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$8pass_any
    or ebp,DWORD PTR [rsp+0x38]
    mov QWORD PTR [rbx+0x50],r13
    mov QWORD PTR [rbx+0x58],r15
    mov WORD PTR [rbx+0x60],bp
54:
    mov al,0x1
55:
    add rsp,0x58
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
56:
    test r11d,0x4800
    jne 72
    mov eax,DWORD PTR [r13+0x2c]
    bswap eax
    mov WORD PTR [rbx+0x48],bp
    mov DWORD PTR [rbx+0x4c],eax
    cmp DWORD PTR [rsi+0x190],0x2
    jne 47
    mov ecx,DWORD PTR [rsi+0x1a4]
    shr eax,0x10
    and eax,0x7fff
    je 47
    cmp ecx,ebp
    ja 47
    add eax,ebp
    cmp eax,DWORD PTR [rsi+0x1a0]
    ja 47
    mov rdx,QWORD PTR [rsi+0x198]
    mov ecx,DWORD PTR [rdx+0x100]
    movzx edx,WORD PTR [rdx+0x80]
    cmp dx,cx
    je 47
    mov rdx,QWORD PTR [rsi+0x198]
    mov r8,QWORD PTR [rdx+0x180]
    mov edi,DWORD PTR [rdx+0x188]
    dec edi
    and edi,ecx
    movzx edi,di
    mov r15,QWORD PTR [r8+rdi*8]
    cmp eax,DWORD PTR [rsi+0x1a0]
    jne 60
    mov DWORD PTR [rsi+0x1a4],0x0
    inc ecx
    movzx eax,cx
    mov DWORD PTR [rdx+0x100],eax
    mov bp,0x82
    jmp 53
57:
    movzx ebp,BYTE PTR [rsp+0x2c]
    mov r15,QWORD PTR [rsp+0x20]
    jmp 53
58:
    movzx ebp,BYTE PTR [rsp+0x2c]
    mov r15,QWORD PTR [rsp+0x20]
    or ebp,0x100
    jmp 53
59:
    shl r12,0x20
    inc r12
    mov rdi,rbx
    mov rsi,r12
    jmp 49
60:
    mov DWORD PTR [rsi+0x1a4],eax
    mov bp,0x82
    jmp 53
61:
    mov edx,DWORD PTR [rsp+0x1c]
62:
    mov eax,0x5
    jmp 64
63:
    mov eax,0x303
64:
    shl rdx,0x20
    or rdx,rax
65:
    mov rdi,rbx
    mov rsi,rdx
    jmp 49
66:
    mov rcx,QWORD PTR [rsp+0x50]
    shl rcx,0x10
    movzx eax,BYTE PTR [rsp+0x4]
    shl eax,0x8
    or rax,rcx
    movzx esi,BYTE PTR [rsp+0x10]
    or rsi,rax
    jmp 48
67:
    mov rax,QWORD PTR [rsp+0x48]
    mov QWORD PTR [rsp+0x30],rax
    movzx r15d,WORD PTR [rsp+0x42]
    mov rdi,rbx
    mov esi,r14d
    mov edx,r12d
    call QWORD PTR [_ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$12side_of_tags]
    mov ebp,r15d
    or ebp,0xffff8000
    test al,al
    cmovne ebp,r15d
    mov r15,QWORD PTR [rsp+0x30]
    jmp 53
68:
    mov eax,0x3
    jmp 71
69:
    shl r11,0x20
    mov eax,0x4
    jmp 71
70:
    mov eax,0x3
    xor r11d,r11d
71:
    shl edx,0x8
    or rdx,rax
    or rdx,r11
    jmp 65
72:
    shr rdx,0x1a
    and edx,0x300
    or rdx,0x3
    jmp 65
