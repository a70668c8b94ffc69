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
    lea rdi,[rsp+0x20]
    call QWORD PTR [_ZN8mlx5_wqe4send7records11SendRecords12retire_ahead]
    cmp DWORD PTR [rsp+0x20],0x1
    jne 2
    mov rax,QWORD PTR [rsp+0x28]
    movzx ecx,WORD PTR [rsp+0x34]
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
    jmp 56
1:
    xor eax,eax
    ret
2:
    mov rax,QWORD PTR [rbx+0x68]
    movzx eax,BYTE PTR [rax+0x3f]
    xor al,BYTE PTR [rbx+0x148]
    test al,0x1
    jne 46
    lea r12,[rbx+0xe0]
    mov DWORD PTR [rsp+0x4],eax
    mov QWORD PTR [rsp+0x10],rax
3:
    mov r10,QWORD PTR [rbx+0x68]
    mov ecx,DWORD PTR [r10+0x3c]
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
    je 66
    add rsi,0x10
    mov edx,DWORD PTR [rbx+0x144]
    movzx ecx,dil
    mov rdi,r12
    call QWORD PTR [_ZN7mlx5_cq3run3Run5start]
    test al,0x1
    jne 65
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
    lea rdi,[rsp+0x20]
    mov rsi,r12
    call QWORD PTR [_ZN7mlx5_cq3run3Run6expand]
    cmp DWORD PTR [rsp+0x20],0x1
    je 64
    mov r10,QWORD PTR [rsp+0x28]
    test r10,r10
    je 8
    mov QWORD PTR [rbx+0x68],r10
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
    add r10,QWORD PTR [rbx+0x40]
    cmp r10,QWORD PTR [rbx+0x78]
    jne 7
    xor BYTE PTR [rbx+0x148],0x1
    mov r10,QWORD PTR [rbx+0x70]
7:
    mov QWORD PTR [rbx+0x68],r10
    mov eax,DWORD PTR [rbx+0x140]
    add DWORD PTR [rbx+0x144],eax
    jmp 38
8:
    mov r10,QWORD PTR [rbx+0x68]
9:
    movzx r11d,WORD PTR [rbx+0x154]
10:
    mov eax,DWORD PTR [r10+0x20]
    mov r13d,DWORD PTR [r10+0x3c]
    bswap r13d
    shl r13,0x20
    or r13,rax
    mov rax,r13
    shr rax,0x20
    mov QWORD PTR [rsp+0x60],rax
    mov r15d,eax
    shr r15b,0x4
    cmp r15b,0xc
    je 44
    mov ebp,r13d
    and ebp,0xffffff00
    bswap ebp
    movzx r9d,r15b
    mov al,0x1
    cmp r15b,0xe
    ja 19
    mov ecx,0x401e
    bt ecx,r9d
    jae 13
11:
    lea rdx,[rbx+0x30]
12:
    mov ecx,r13d
    cmp QWORD PTR [rdx],rcx
    jne 14
    mov ecx,0x30
    test al,al
    je 22
    jmp 23
13:
    mov ecx,0x2001
    bt ecx,r9d
    jae 19
    mov ecx,r13d
    lea rax,[rbx+0x20]
    cmp QWORD PTR [rax],rcx
    je 22
    xor eax,eax
14:
    mov rdx,QWORD PTR [rbx+0x98]
    mov esi,DWORD PTR [rbx+0x14c]
    mov rdx,QWORD PTR [rdx+0x10]
    mov edi,ebp
    shr edi,0xc
    mov rdx,QWORD PTR [rdx+rdi*8]
    test rdx,rdx
    je 62
    mov r14,r9
    mov edi,ebp
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
    jne 62
    mov r9,r14
    cmp rdx,0x1
    je 16
    test rdx,rdx
    je 62
    test al,al
    je 21
    mov QWORD PTR [rbx+0x30],rcx
    mov QWORD PTR [rbx+0x38],rdx
    mov ecx,0x30
    jmp 23
16:
    mov rdi,QWORD PTR [rbx]
    test rdi,rdi
    je 18
    mov rax,QWORD PTR [rbx+0x8]
    lea ecx,[r9-0x1]
    cmp ecx,0x4
    jb 17
    cmp r9d,0xe
    jne 18
17:
    shr r13,0x30
    mov esi,ebp
    mov edx,r13d
    mov r14,r10
    call QWORD PTR [rax+0x20]
    mov r10,r14
18:
    mov rdi,rbx
    mov rsi,r10
    jmp 37
19:
    mov rdx,QWORD PTR [rbx+0x98]
    mov ecx,DWORD PTR [rbx+0x14c]
    mov rdx,QWORD PTR [rdx+0x10]
    mov esi,ebp
    shr esi,0xc
    mov rsi,QWORD PTR [rdx+rsi*8]
    test rsi,rsi
    je 11
    mov edi,ebp
    and edi,0xfff
    shl edi,0x4
    lea rdx,[rsi+rdi*1]
    mov r8,QWORD PTR [rsi+rdi*1+0x8]
20:
    mov rsi,r8
    mov rdi,QWORD PTR [rdx]
    mov r8,QWORD PTR [rdx+0x8]
    cmp r8,rsi
    jne 20
    lea rdx,[rbx+0x30]
    cmp ecx,edi
    jne 12
    test rsi,rsi
    sete al
    lea rdx,[rbx+0x20]
    lea rcx,[rbx+0x30]
    cmove rdx,rcx
    jmp 12
21:
    mov QWORD PTR [rbx+0x20],rcx
    mov QWORD PTR [rbx+0x28],rdx
22:
    mov ecx,0x20
23:
    mov rsi,QWORD PTR [rbx+rcx*1+0x8]
    mov rdx,r13
    shr rdx,0x30
    mov r14b,0x1
    cmp r15b,0xe
    mov QWORD PTR [rsp+0x40],r11
    mov QWORD PTR [rsp+0x18],rsi
    ja 43
    lea rcx,[data]
    movsxd rax,DWORD PTR [rcx+r9*4]
    add rax,rcx
    jmp rax
    mov rax,QWORD PTR [rsi+0x190]
    cmp rax,0x2
    jne 24
    mov QWORD PTR [rsp+0x8],rdx
    mov QWORD PTR [rsp+0x10],0x0
    mov eax,r15d
    mov DWORD PTR [rsp+0x4],eax
    jmp 35
    mov rax,QWORD PTR [rsi+0x190]
    cmp rax,0x2
    je 58
24:
    mov rdi,QWORD PTR [rsi+0x198]
    test rax,rax
    mov QWORD PTR [rsp+0x8],rdx
    je 26
    cmp QWORD PTR [rdi+0x28],rdx
    jbe 25
    mov rax,QWORD PTR [rdi+0x20]
    movzx ecx,BYTE PTR [rax+rdx*1]
    test cl,cl
    je 25
    xor ecx,ecx
    xchg BYTE PTR [rax+rdx*1],cl
    test cl,cl
    je 25
    mov rax,QWORD PTR [rdi+0x10]
    mov r12,QWORD PTR [rax+rdx*8]
    mov r11,r13
    shr r11,0x36
    mov rsi,QWORD PTR [rdi+0x30]
    mov eax,0x1
    mov r8d,0x1
    mov ecx,edx
    shl r8,cl
    lock or QWORD PTR [rsi+r11*8],r8
    mov rcx,QWORD PTR [rdi+0x40]
    mov BYTE PTR [rcx+r11*1],0x1
    mov rcx,QWORD PTR [rdi+0x50]
    shr r13,0x3c
    mov BYTE PTR [rcx+r13*1],0x1
    cmp rax,0x1
    jne 34
    jmp 50
25:
    xor eax,eax
    cmp rax,0x1
    jne 34
    jmp 50
26:
    sub rdi,0xffffffffffffff80
    mov esi,edx
    mov r14,r10
    mov r12,r9
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue14ReceiveRecords6retire]
    mov r9,r12
    mov r10,r14
    mov r12,rdx
    cmp rax,0x1
    jne 34
    jmp 50
    mov QWORD PTR [rsp+0x38],r9
    mov r13,r10
    lea rdi,[rsp+0x20]
    xor ecx,ecx
    mov r14,rdx
    mov r12,rsi
    call QWORD PTR [_ZN8mlx5_wqe4send7records11SendRecords10retire_any]
    mov rax,QWORD PTR [rsp+0x20]
    cmp rax,0x2
    je 41
    test rax,rax
    jne 36
    jmp 59
    mov QWORD PTR [rsp+0x8],rdx
    mov r12,r9
    mov r14,r10
    mov rdi,r10
    call QWORD PTR [_ZN7mlx5_cq4ring4slow13is_page_fault]
    mov rcx,QWORD PTR [rsp+0x18]
    test al,al
    je 27
    cmp DWORD PTR [rcx+0x190],0x1
    je 45
27:
    mov rax,QWORD PTR [rcx+0x190]
    lea rdi,[rcx+0x198]
    cmp rax,0x2
    je 29
    cmp eax,0x1
    jne 30
    mov r11,QWORD PTR [rdi]
    mov rsi,QWORD PTR [rsp+0x8]
    cmp QWORD PTR [r11+0x28],rsi
    jbe 32
    mov rax,QWORD PTR [r11+0x20]
    movzx ecx,BYTE PTR [rax+rsi*1]
    test cl,cl
    mov r10,r14
    mov r9,r12
    je 42
    xor ecx,ecx
    xchg BYTE PTR [rax+rsi*1],cl
    test cl,cl
    je 42
    mov rcx,rsi
    mov rax,QWORD PTR [r11+0x10]
    mov rdx,QWORD PTR [rax+rsi*8]
    mov rsi,r13
    shr rsi,0x36
    mov rdi,QWORD PTR [r11+0x30]
    mov eax,0x1
    mov r8d,0x1
    shl r8,cl
    lock or QWORD PTR [rdi+rsi*8],r8
    mov rcx,QWORD PTR [r11+0x40]
    mov BYTE PTR [rcx+rsi*1],0x1
    mov rcx,QWORD PTR [r11+0x50]
    shr r13,0x3c
    mov BYTE PTR [rcx+r13*1],0x1
    test al,0x1
    je 34
    jmp 54
    mov QWORD PTR [rsp+0x38],r9
    mov r13,r10
    lea rdi,[rsp+0x20]
    mov ecx,0x1
    mov r14,rdx
    mov r12,rsi
    call QWORD PTR [_ZN8mlx5_wqe4send7records11SendRecords10retire_any]
    mov rax,QWORD PTR [rsp+0x20]
    cmp rax,0x2
    je 41
    test rax,rax
    jne 36
    jmp 60
28:
    movzx edx,al
    lea rdi,[data]
    movsxd rsi,DWORD PTR [rdi+rdx*4]
    add rsi,rdi
    jmp rsi
    mov esi,0x20
    cmp ecx,0x4fffffff
    ja 31
    jmp 40
29:
    call QWORD PTR [_ZN8mlx5_wqe7receive8striding15StridingRecords13retire_failed]
    jmp 33
30:
    mov rdi,QWORD PTR [rdi]
    sub rdi,0xffffffffffffff80
    mov rsi,QWORD PTR [rsp+0x8]
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue14ReceiveRecords6retire]
    jmp 33
    cmp ecx,0x4fffffff
    jbe 39
31:
    xor r11d,r11d
    jmp 10
    xor r11d,r11d
    cmp ecx,0x4fffffff
    ja 10
    jmp 71
32:
    xor eax,eax
33:
    mov r10,r14
    mov r9,r12
    test al,0x1
    jne 54
34:
    xor r14d,r14d
    mov rsi,QWORD PTR [rsp+0x18]
35:
    lea rdi,[rsp+0x48]
    mov r13,r10
    mov rdx,r10
    mov r12,r9
    mov ecx,r9d
    mov r8,QWORD PTR [rsp+0x8]
    call _ZN7mlx5_cq12tag_matching6retire
    movzx eax,WORD PTR [rsp+0x48]
    cmp eax,0x2
    je 47
    test eax,eax
    je 70
    mov rcx,QWORD PTR [rsp+0x4c]
    mov eax,ecx
    shr eax,0x8
    mov DWORD PTR [rsp+0x4],eax
    mov QWORD PTR [rsp+0x10],rcx
    shr rcx,0x10
    mov QWORD PTR [rsp+0x58],rcx
36:
    mov rsi,r13
    lea r12,[rbx+0xe0]
    mov rdi,rbx
37:
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$8pass_any
38:
    mov rax,QWORD PTR [rbx+0x68]
    movzx eax,BYTE PTR [rax+0x3f]
    xor al,BYTE PTR [rbx+0x148]
    test al,0x1
    je 3
    jmp 46
39:
    mov esi,0x40
    cmp QWORD PTR [rbx+0x40],0x40
    jbe 73
40:
    mov r11d,DWORD PTR [r10+0x2c]
    bswap r11d
    cmp esi,r11d
    jb 72
    cmp al,0x2
    mov r11d,0x800
    mov eax,0x4000
    cmove r11d,eax
    jmp 10
41:
    mov QWORD PTR [rsp+0x8],r14
    xor r14d,r14d
    mov r10,r13
    mov r9,QWORD PTR [rsp+0x38]
    mov rsi,r12
    jmp 35
42:
    xor eax,eax
    test al,0x1
    je 34
    jmp 54
43:
    mov QWORD PTR [rsp+0x8],rdx
    mov eax,r15d
    mov DWORD PTR [rsp+0x4],eax
    mov QWORD PTR [rsp+0x10],0x0
    jmp 35
44:
    mov rdi,QWORD PTR [rbx+0x10]
    mov rsi,QWORD PTR [rbx+0x18]
    mov rdx,r10
    mov r14,r10
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$22report_signature_error
    mov rdi,rbx
    mov rsi,r14
    jmp 37
45:
    mov rdi,QWORD PTR [rcx+0x198]
    add rdi,0x10
    mov rsi,QWORD PTR [rsp+0x8]
    call QWORD PTR [_ZN8mlx5_wqe7receive6shared20SharedReceiveRecords6repost]
    mov rcx,QWORD PTR [rsp+0x18]
    test al,al
    je 27
    mov rdi,rbx
    mov rsi,r14
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$8pass_any
    lea r12,[rbx+0xe0]
    jmp 38
46:
    mov rax,QWORD PTR [rbx+0x90]
    mov ecx,DWORD PTR [rbx+0x144]
    mov DWORD PTR [rax+0x2c],ecx
    mov rax,QWORD PTR [rbx+0x88]
    and ecx,0xffffff
    bswap ecx
    mov DWORD PTR [rax],ecx
    xor eax,eax
    jmp 57
47:
    test r14b,r14b
    mov r10,r13
    mov r11,QWORD PTR [rsp+0x40]
    mov r9,r12
    mov rsi,QWORD PTR [rsp+0x18]
    jne 69
48:
    movzx eax,BYTE PTR [rsi+0x1a8]
    test al,al
    jne 49
    test r15b,r15b
    je 51
    cmp r9d,0xd
    je 51
    cmp DWORD PTR [rsi+0x190],0x1
    jne 51
    mov rdi,QWORD PTR [rsi+0x198]
    add rdi,0x10
    mov r14,r10
    mov r15,r9
    call QWORD PTR [_ZN8mlx5_wqe7receive6shared20SharedReceiveRecords7is_lent]
    mov r9,r15
    mov r11,QWORD PTR [rsp+0x40]
    mov r10,r14
    test al,al
    je 51
49:
    mov rdi,rbx
    mov rsi,r10
    mov edx,r9d
    mov ecx,r11d
    call QWORD PTR [_ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$10found_lent]
    jmp 56
50:
    or r15b,0x80
    movzx ebp,r15b
    jmp 55
51:
    shl rbp,0x20
    mov rax,QWORD PTR [rsp+0x60]
    and eax,0xffff0000
    lea rsi,[rax+rbp*1]
    add rsi,0x2
52:
    mov rdi,rbx
53:
    call _ZN7mlx5_cq4ring13Ring$LT$Q$GT$5latch
    xor eax,eax
    jmp 57
54:
    mov bp,0x180
    mov r12,rdx
55:
    mov rdi,rbx
    mov rsi,r10
    mov r14,r10
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$8pass_any
    or ebp,DWORD PTR [rsp+0x40]
    mov QWORD PTR [rbx+0x50],r14
    mov QWORD PTR [rbx+0x58],r12
    mov WORD PTR [rbx+0x60],bp
56:
    mov al,0x1
57:
    add rsp,0x68
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
58:
    test r11d,0x4800
    jne 75
    mov eax,DWORD PTR [r10+0x2c]
    bswap eax
    mov WORD PTR [rbx+0x48],dx
    mov DWORD PTR [rbx+0x4c],eax
    cmp DWORD PTR [rsi+0x190],0x2
    jne 48
    mov ecx,DWORD PTR [rsi+0x1a4]
    shr eax,0x10
    and eax,0x7fff
    je 48
    cmp ecx,edx
    ja 48
    add eax,edx
    cmp eax,DWORD PTR [rsi+0x1a0]
    ja 48
    mov rdx,QWORD PTR [rsi+0x198]
    mov ecx,DWORD PTR [rdx+0x100]
    movzx edx,WORD PTR [rdx+0x80]
    cmp dx,cx
    je 48
    mov rdx,QWORD PTR [rsi+0x198]
    mov r8,QWORD PTR [rdx+0x180]
    mov edi,DWORD PTR [rdx+0x188]
    dec edi
    and edi,ecx
    movzx edi,di
    mov r12,QWORD PTR [r8+rdi*8]
    cmp eax,DWORD PTR [rsi+0x1a0]
    jne 63
    mov DWORD PTR [rsi+0x1a4],0x0
    inc ecx
    movzx eax,cx
    mov DWORD PTR [rdx+0x100],eax
    mov bp,0x82
    jmp 55
59:
    movzx ebp,BYTE PTR [rsp+0x34]
    mov r12,QWORD PTR [rsp+0x28]
    jmp 61
60:
    movzx ebp,BYTE PTR [rsp+0x34]
    mov r12,QWORD PTR [rsp+0x28]
    or ebp,0x100
61:
    mov r10,r13
    jmp 55
62:
    shl rbp,0x20
    inc rbp
    mov rdi,rbx
    mov rsi,rbp
    jmp 53
63:
    mov DWORD PTR [rsi+0x1a4],eax
    mov bp,0x82
    jmp 55
64:
    mov edx,DWORD PTR [rsp+0x24]
65:
    mov eax,0x5
    jmp 67
66:
    mov eax,0x303
67:
    shl rdx,0x20
    or rdx,rax
68:
    mov rdi,rbx
    mov rsi,rdx
    jmp 53
69:
    mov rcx,QWORD PTR [rsp+0x58]
    shl rcx,0x10
    movzx eax,BYTE PTR [rsp+0x4]
    shl eax,0x8
    or rax,rcx
    movzx esi,BYTE PTR [rsp+0x10]
    or rsi,rax
    jmp 52
70:
    mov rax,QWORD PTR [rsp+0x50]
    movzx r14d,WORD PTR [rsp+0x4a]
    mov rdi,rbx
    mov esi,r12d
    mov r12,rax
    mov edx,ebp
    call QWORD PTR [_ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$12side_of_tags]
    mov ebp,r14d
    or ebp,0xffff8000
    test al,al
    cmovne ebp,r14d
    jmp 61
71:
    mov eax,0x3
    jmp 74
72:
    shl r11,0x20
    mov eax,0x4
    jmp 74
73:
    mov eax,0x3
    xor r11d,r11d
74:
    shl edx,0x8
    or rdx,rax
    or rdx,r11
    jmp 68
75:
    shr r13,0x1a
    and r13d,0x300
    or r13,0x3
    mov rdi,rbx
    mov rsi,r13
    jmp 53
