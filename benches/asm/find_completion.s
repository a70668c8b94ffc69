    cmp BYTE PTR [rdi+0xa0],0x7
    jne 1
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x68
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
3:
    xor al,BYTE PTR [rbx+0x148]
    test al,0x1
    jne 44
    mov r14,QWORD PTR [rbx+0x68]
    mov ecx,DWORD PTR [r14+0x3c]
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
    lea rdi,[rbx+0xe0]
    call QWORD PTR [_ZN7mlx5_cq3run3Run5start]
    test al,0x1
    jne 61
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
    lea rsi,[rbx+0xe0]
    call QWORD PTR [_ZN7mlx5_cq3run3Run6expand]
    cmp DWORD PTR [rsp+0x18],0x1
    je 60
    mov r14,QWORD PTR [rsp+0x20]
    test r14,r14
    je 8
    mov QWORD PTR [rbx+0x68],r14
    mov QWORD PTR [rbx+0x40],0x40
    mov DWORD PTR [rbx+0x140],0x0
    mov QWORD PTR [rbx+0x78],0xffffffffffffffff
    xor r10d,r10d
    cmp BYTE PTR [rbx+0x13a],0x0
    setne r10b
    shl r10d,0x9
    add r10d,0x200
    mov WORD PTR [rbx+0x154],r10w
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
    add r14,QWORD PTR [rbx+0x40]
    cmp r14,QWORD PTR [rbx+0x78]
    jne 7
    xor BYTE PTR [rbx+0x148],0x1
    mov r14,QWORD PTR [rbx+0x70]
7:
    mov QWORD PTR [rbx+0x68],r14
    mov eax,DWORD PTR [rbx+0x140]
    add DWORD PTR [rbx+0x144],eax
    movzx eax,BYTE PTR [r14+0x3f]
    jmp 3
8:
    mov r14,QWORD PTR [rbx+0x68]
9:
    movzx r10d,WORD PTR [rbx+0x154]
10:
    mov eax,DWORD PTR [r14+0x20]
    mov ebp,DWORD PTR [r14+0x3c]
    bswap ebp
    shl rbp,0x20
    or rbp,rax
    mov r12,rbp
    shr r12,0x20
    mov QWORD PTR [rsp+0x60],r14
    mov r15d,r12d
    shr r15b,0x4
    cmp r15b,0xc
    je 43
    mov r13d,ebp
    and r13d,0xffffff00
    bswap r13d
    movzx r11d,r15b
    mov al,0x1
    cmp r15b,0xe
    ja 18
    mov ecx,0x401e
    bt ecx,r11d
    jae 13
11:
    lea rdx,[rbx+0x30]
12:
    mov ecx,ebp
    cmp QWORD PTR [rdx],rcx
    jne 14
    mov ecx,0x30
    test al,al
    je 21
    jmp 22
13:
    mov ecx,0x2001
    bt ecx,r11d
    jae 18
    mov ecx,ebp
    lea rax,[rbx+0x20]
    cmp QWORD PTR [rax],rcx
    je 21
    xor eax,eax
14:
    mov rdx,QWORD PTR [rbx+0x98]
    mov esi,DWORD PTR [rbx+0x14c]
    mov rdx,QWORD PTR [rdx+0x10]
    mov edi,r13d
    shr edi,0xc
    mov rdx,QWORD PTR [rdx+rdi*8]
    test rdx,rdx
    je 56
    mov edi,r13d
    and edi,0xfff
    shl edi,0x4
    lea r8,[rdx+rdi*1]
    mov r9,QWORD PTR [rdx+rdi*1+0x8]
15:
    mov rdx,r9
    mov rdi,QWORD PTR [r8]
    mov r9,QWORD PTR [r8+0x8]
    cmp r9,rdx
    jne 15
    mov r8,rdi
    shr r8,0x20
    test al,al
    cmove r8d,edi
    cmp esi,r8d
    jne 56
    cmp rdx,0x1
    je 16
    test rdx,rdx
    je 56
    test al,al
    je 20
    mov QWORD PTR [rbx+0x30],rcx
    mov QWORD PTR [rbx+0x38],rdx
    mov ecx,0x30
    jmp 22
16:
    mov rdi,QWORD PTR [rbx]
    test rdi,rdi
    je 36
    mov rax,QWORD PTR [rbx+0x8]
    lea ecx,[r11-0x1]
    cmp ecx,0x4
    jb 17
    cmp r11d,0xe
    jne 36
17:
    shr rbp,0x30
    mov esi,r13d
    mov edx,ebp
    call QWORD PTR [rax+0x20]
    jmp 36
18:
    mov rdx,QWORD PTR [rbx+0x98]
    mov ecx,DWORD PTR [rbx+0x14c]
    mov rdx,QWORD PTR [rdx+0x10]
    mov esi,r13d
    shr esi,0xc
    mov rsi,QWORD PTR [rdx+rsi*8]
    test rsi,rsi
    je 11
    mov edi,r13d
    and edi,0xfff
    shl edi,0x4
    lea rdx,[rsi+rdi*1]
    mov r8,QWORD PTR [rsi+rdi*1+0x8]
19:
    mov rsi,r8
    mov rdi,QWORD PTR [rdx]
    mov r8,QWORD PTR [rdx+0x8]
    cmp r8,rsi
    jne 19
    lea rdx,[rbx+0x30]
    cmp ecx,edi
    jne 12
    test rsi,rsi
    sete al
    lea rdx,[rbx+0x20]
    lea rcx,[rbx+0x30]
    cmove rdx,rcx
    jmp 12
20:
    mov QWORD PTR [rbx+0x20],rcx
    mov QWORD PTR [rbx+0x28],rdx
21:
    mov ecx,0x20
22:
    mov QWORD PTR [rsp+0x8],r10
    mov rsi,QWORD PTR [rbx+rcx*1+0x8]
    mov r8,rbp
    shr r8,0x30
    cmp r15b,0xe
    mov QWORD PTR [rsp+0x30],rsi
    mov QWORD PTR [rsp+0x10],r8
    mov QWORD PTR [rsp+0x58],r12
    jne 24
    mov r12,r11
    mov rdi,r14
    call QWORD PTR [_ZN7mlx5_cq4ring4slow13is_page_fault]
    mov rcx,QWORD PTR [rsp+0x30]
    test al,al
    je 23
    mov QWORD PTR [rsp+0x18],rbx
    lea rax,[rsp+0x60]
    mov QWORD PTR [rsp+0x20],rax
    cmp DWORD PTR [rcx+0x190],0x1
    je 42
23:
    mov rax,QWORD PTR [rcx+0x190]
    lea rdi,[rcx+0x198]
    cmp rax,0x2
    mov rsi,QWORD PTR [rsp+0x10]
    je 26
    cmp eax,0x1
    jne 27
    mov r10,QWORD PTR [rdi]
    cmp QWORD PTR [r10+0x28],rsi
    jbe 29
    mov rax,QWORD PTR [r10+0x20]
    movzx ecx,BYTE PTR [rax+rsi*1]
    test cl,cl
    mov r11,r12
    je 33
    xor ecx,ecx
    xchg BYTE PTR [rax+rsi*1],cl
    test cl,cl
    je 33
    mov rax,QWORD PTR [r10+0x10]
    mov rdx,QWORD PTR [rax+rsi*8]
    mov r9,rbp
    shr r9,0x36
    mov rdi,QWORD PTR [r10+0x30]
    mov eax,0x1
    mov r8d,0x1
    mov ecx,esi
    shl r8,cl
    lock or QWORD PTR [rdi+r9*8],r8
    mov rcx,QWORD PTR [r10+0x40]
    mov BYTE PTR [rcx+r9*1],0x1
    mov rcx,QWORD PTR [r10+0x50]
    shr rbp,0x3c
    mov BYTE PTR [rcx+rbp*1],0x1
    test al,0x1
    je 34
    jmp 48
24:
    jae 25
    lea rcx,[data]
    movsxd rax,DWORD PTR [rcx+r11*4]
    add rax,rcx
    jmp rax
    mov rax,QWORD PTR [rsi+0x190]
    cmp rax,0x2
    jne 30
25:
    mov BYTE PTR [rsp+0x38],0x0
    mov BYTE PTR [rsp+0x39],r15b
    mov bpl,0x1
    jmp 35
26:
    call QWORD PTR [_ZN8mlx5_wqe7receive8striding15StridingRecords13retire_failed]
    mov r11,r12
    test al,0x1
    je 34
    jmp 48
27:
    mov rdi,QWORD PTR [rdi]
    sub rdi,0xffffffffffffff80
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue14ReceiveRecords6retire]
    mov r11,r12
    test al,0x1
    je 34
    jmp 48
28:
    movzx edx,al
    lea rdi,[data]
    movsxd rsi,DWORD PTR [rdi+rdx*4]
    add rsi,rdi
    jmp rsi
    mov esi,0x20
    cmp ecx,0x4fffffff
    ja 38
    jmp 40
29:
    xor eax,eax
    mov r11,r12
    test al,0x1
    je 34
    jmp 48
    mov QWORD PTR [rsp+0x10],r11
    lea rdi,[rsp+0x18]
    mov edx,r8d
    xor ecx,ecx
    mov r12,rsi
    mov rbp,r8
    call QWORD PTR [_ZN8mlx5_wqe4send7records11SendRecords10retire_any]
    mov rax,QWORD PTR [rsp+0x18]
    cmp rax,0x2
    je 41
    test rax,rax
    jne 36
    jmp 59
    mov rax,QWORD PTR [rsi+0x190]
    cmp rax,0x2
    je 57
30:
    mov rdi,QWORD PTR [rsi+0x198]
    test rax,rax
    je 32
    cmp QWORD PTR [rdi+0x28],r8
    jbe 31
    mov rax,QWORD PTR [rdi+0x20]
    movzx ecx,BYTE PTR [rax+r8*1]
    test cl,cl
    je 31
    xor ecx,ecx
    xchg BYTE PTR [rax+r8*1],cl
    test cl,cl
    je 31
    mov rax,QWORD PTR [rdi+0x10]
    mov rdx,QWORD PTR [rax+r8*8]
    mov r10,rbp
    shr r10,0x36
    mov rsi,QWORD PTR [rdi+0x30]
    mov eax,0x1
    mov r9d,0x1
    mov ecx,r8d
    shl r9,cl
    lock or QWORD PTR [rsi+r10*8],r9
    mov rcx,QWORD PTR [rdi+0x40]
    mov BYTE PTR [rcx+r10*1],0x1
    mov rcx,QWORD PTR [rdi+0x50]
    shr rbp,0x3c
    mov BYTE PTR [rcx+rbp*1],0x1
    cmp rax,0x1
    jne 34
    jmp 52
31:
    xor eax,eax
    cmp rax,0x1
    jne 34
    jmp 52
32:
    sub rdi,0xffffffffffffff80
    mov esi,r8d
    mov r12,r11
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue14ReceiveRecords6retire]
    mov r11,r12
    cmp rax,0x1
    jne 34
    jmp 52
    mov QWORD PTR [rsp+0x10],r11
    lea rdi,[rsp+0x18]
    mov edx,r8d
    mov ecx,0x1
    mov r12,rsi
    mov rbp,r8
    call QWORD PTR [_ZN8mlx5_wqe4send7records11SendRecords10retire_any]
    mov rax,QWORD PTR [rsp+0x18]
    cmp rax,0x2
    je 41
    test rax,rax
    jne 36
    jmp 58
33:
    xor eax,eax
    test al,0x1
    jne 48
34:
    xor ebp,ebp
    mov rsi,QWORD PTR [rsp+0x30]
    mov r8,QWORD PTR [rsp+0x10]
35:
    lea rdi,[rsp+0x48]
    mov rdx,r14
    mov r12,r11
    mov ecx,r11d
    call _ZN7mlx5_cq12tag_matching6retire
    movzx eax,WORD PTR [rsp+0x48]
    cmp eax,0x2
    je 45
    test eax,eax
    je 67
    lea rcx,[rsp+0x4c]
    mov eax,DWORD PTR [rcx+0x8]
    mov DWORD PTR [rsp+0x40],eax
    mov rax,QWORD PTR [rcx]
    mov QWORD PTR [rsp+0x38],rax
36:
    mov rdi,rbx
    mov rsi,r14
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$8pass_any
37:
    mov r14,QWORD PTR [rbx+0x68]
    movzx eax,BYTE PTR [r14+0x3f]
    jmp 3
    cmp ecx,0x4fffffff
    jbe 39
38:
    xor r10d,r10d
    jmp 10
    xor r10d,r10d
    cmp ecx,0x4fffffff
    ja 10
    jmp 68
39:
    mov esi,0x40
    cmp QWORD PTR [rbx+0x40],0x40
    jbe 70
40:
    mov r10d,DWORD PTR [r14+0x2c]
    bswap r10d
    cmp esi,r10d
    jb 69
    cmp al,0x2
    mov r10d,0x800
    mov eax,0x4000
    cmove r10d,eax
    jmp 10
41:
    mov r8,rbp
    xor ebp,ebp
    mov r11,QWORD PTR [rsp+0x10]
    mov rsi,r12
    jmp 35
42:
    mov rdi,QWORD PTR [rcx+0x198]
    add rdi,0x10
    mov rsi,QWORD PTR [rsp+0x10]
    lea rdx,[rsp+0x18]
    lea rcx,[data]
    call QWORD PTR [_ZN8mlx5_wqe7receive6shared20SharedReceiveRecords6repost]
    mov rcx,QWORD PTR [rsp+0x30]
    test al,al
    je 23
    jmp 37
43:
    mov rdi,QWORD PTR [rbx+0x10]
    mov rsi,QWORD PTR [rbx+0x18]
    mov rdx,r14
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$22report_signature_error
    jmp 36
44:
    mov rax,QWORD PTR [rbx+0x90]
    mov ecx,DWORD PTR [rbx+0x144]
    mov DWORD PTR [rax+0x2c],ecx
    mov rax,QWORD PTR [rbx+0x88]
    and ecx,0xffffff
    bswap ecx
    mov DWORD PTR [rax],ecx
    xor eax,eax
    jmp 55
45:
    test bpl,bpl
    mov r11,r12
    mov r12,QWORD PTR [rsp+0x58]
    mov rsi,QWORD PTR [rsp+0x30]
    jne 66
46:
    movzx eax,BYTE PTR [rsi+0x1a8]
    test al,al
    jne 47
    test r15b,r15b
    je 49
    cmp r11d,0xd
    je 49
    cmp DWORD PTR [rsi+0x190],0x1
    jne 49
    mov rdi,QWORD PTR [rsi+0x198]
    add rdi,0x10
    mov r15,r11
    call QWORD PTR [_ZN8mlx5_wqe7receive6shared20SharedReceiveRecords7is_lent]
    mov r11,r15
    test al,al
    je 49
47:
    mov rdi,rbx
    mov rsi,r14
    mov edx,r11d
    mov rcx,QWORD PTR [rsp+0x8]
    call QWORD PTR [_ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$10found_lent]
    jmp 54
48:
    mov bp,0x180
    jmp 53
49:
    shl r13,0x20
    and r12d,0xffff0000
    lea rsi,[r12+r13*1]
    add rsi,0x2
50:
    mov rdi,rbx
51:
    call _ZN7mlx5_cq4ring13Ring$LT$Q$GT$5latch
    xor eax,eax
    jmp 55
52:
    or r15b,0x80
    movzx ebp,r15b
53:
    mov r15,QWORD PTR [rsp+0x8]
    mov QWORD PTR [rsp+0x3c],rdx
    mov rdi,rbx
    mov rsi,r14
    mov r12,rdx
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$8pass_any
    or ebp,r15d
    mov QWORD PTR [rbx+0x50],r14
    mov QWORD PTR [rbx+0x58],r12
    mov WORD PTR [rbx+0x60],bp
54:
    mov al,0x1
55:
    add rsp,0x68
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
56:
    shl r13,0x20
    inc r13
    mov rdi,rbx
    mov rsi,r13
    jmp 51
57:
    mov WORD PTR [rsp+0x38],0x200
    test DWORD PTR [rsp+0x8],0x4800
    jne 72
    mov eax,DWORD PTR [r14+0x2c]
    bswap eax
    mov WORD PTR [rbx+0x48],r8w
    mov DWORD PTR [rbx+0x4c],eax
    cmp DWORD PTR [rsi+0x190],0x2
    jne 46
    mov ecx,DWORD PTR [rsi+0x1a4]
    shr eax,0x10
    and eax,0x7fff
    je 46
    cmp ecx,r8d
    ja 46
    add eax,r8d
    cmp eax,DWORD PTR [rsi+0x1a0]
    ja 46
    mov rdx,QWORD PTR [rsi+0x198]
    mov ecx,DWORD PTR [rdx+0x100]
    movzx edx,WORD PTR [rdx+0x80]
    cmp dx,cx
    je 46
    mov r9,QWORD PTR [rsi+0x198]
    mov r8,QWORD PTR [r9+0x180]
    mov edi,DWORD PTR [r9+0x188]
    dec edi
    and edi,ecx
    movzx edi,di
    mov rdx,QWORD PTR [r8+rdi*8]
    cmp eax,DWORD PTR [rsi+0x1a0]
    jne 62
    mov DWORD PTR [rsi+0x1a4],0x0
    inc ecx
    movzx eax,cx
    mov DWORD PTR [r9+0x100],eax
    mov bp,0x82
    jmp 53
58:
    movzx ebp,BYTE PTR [rsp+0x2c]
    mov rdx,QWORD PTR [rsp+0x20]
    or ebp,0x100
    jmp 53
59:
    movzx ebp,BYTE PTR [rsp+0x2c]
    mov rdx,QWORD PTR [rsp+0x20]
    jmp 53
60:
    mov edx,DWORD PTR [rsp+0x1c]
61:
    mov eax,0x5
    jmp 64
62:
    mov DWORD PTR [rsi+0x1a4],eax
    mov bp,0x82
    jmp 53
63:
    mov eax,0x303
64:
    shl rdx,0x20
    or rdx,rax
65:
    mov rdi,rbx
    mov rsi,rdx
    jmp 51
66:
    mov rsi,QWORD PTR [rsp+0x38]
    jmp 50
67:
    mov rbp,QWORD PTR [rsp+0x50]
    movzx r15d,WORD PTR [rsp+0x4a]
    mov rdi,rbx
    mov esi,r12d
    mov edx,r13d
    call QWORD PTR [_ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$12side_of_tags]
    mov rdx,rbp
    mov ebp,r15d
    or ebp,0xffff8000
    test al,al
    cmovne ebp,r15d
    jmp 53
68:
    mov eax,0x3
    jmp 71
69:
    shl r10,0x20
    mov eax,0x4
    jmp 71
70:
    mov eax,0x3
    xor r10d,r10d
71:
    shl edx,0x8
    or rdx,rax
    or rdx,r10
    jmp 65
72:
    shr rbp,0x1a
    and ebp,0x300
    or rbp,0x3
    mov rdi,rbx
    mov rsi,rbp
    jmp 51
